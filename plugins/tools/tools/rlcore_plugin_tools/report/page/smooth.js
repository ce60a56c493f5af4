// Smoothing, and what several seeds say together.

// An exponential mean over earlier values without its start's bias; null stays null.
export function smoothed(values, weight) {
  if (!weight) return values;
  let mean = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

// Student's t, two-sided 95 %, by degrees of freedom.
const quantiles = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086];

function quantile(freedom) {
  return quantiles[freedom - 1] ?? 1.96 + 2.4 / freedom;
}

export function meanOf(values) {
  const there = values.filter((value) => value !== null && value !== undefined);
  if (!there.length) return { mean: null, low: null, high: null, count: 0 };
  const mean = there.reduce((sum, value) => sum + value, 0) / there.length;
  if (there.length === 1) return { mean, low: null, high: null, count: 1 };
  const squares = there.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const half = (quantile(there.length - 1) * Math.sqrt(squares / (there.length - 1))) / Math.sqrt(there.length);
  return { mean, low: mean - half, high: mean + half, count: there.length };
}

// `curves`: a [steps, xs, values] each. Mean and interval at each step that any of them has; x is the mean of theirs.
export function together(curves) {
  const bySteps = new Map();
  for (const [steps, xs, values] of curves) {
    steps.forEach((step, place) => {
      if (!bySteps.has(step)) bySteps.set(step, { xs: [], values: [] });
      bySteps.get(step).xs.push(xs[place]);
      bySteps.get(step).values.push(values[place]);
    });
  }
  const steps = [...bySteps.keys()].sort((one, other) => one - other);
  const figures = steps.map((step) => meanOf(bySteps.get(step).values));
  return {
    interval: true,
    xs: steps.map((step) => meanOf(bySteps.get(step).xs).mean),
    ys: figures.map((figure) => figure.mean),
    low: figures.map((figure) => figure.low),
    high: figures.map((figure) => figure.high),
  };
}
