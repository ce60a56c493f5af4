// The data: out of the page, or from the server of `rlcore watch`, again and again.

export const live = document.documentElement.dataset.live === "yes";

export async function embedded(name) {
  const block = document.getElementById(`data-${name}`);
  const stream = new Blob([bytesOf(block.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  block.remove();
  return new Response(stream).json();
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  return bytes;
}

// Calls `changed(data)` when the server has something new (and again, if it returns false), `connected(yes, sentence)` when that changes.
export function follow(name, seconds, changed, connected) {
  let tag = null;
  async function ask() {
    if (document.hidden && tag !== null) return;
    const answer = await fetch(name, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (answer.status === 304) return;
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const data = await answer.json();
    if (changed(data) !== false) tag = answer.headers.get("ETag");
  }
  async function again() {
    try {
      await ask();
      connected(true, "");
    } catch (error) {
      connected(false, error instanceof TypeError ? "rlcore watch has ended, or cannot be reached" : error.message);
    }
    setTimeout(again, seconds * 1000);
  }
  document.addEventListener("visibilitychange", () => document.hidden || ask().catch(() => {}));
  return again();
}
