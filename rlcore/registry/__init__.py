"""Which plugin offers what: discovery, registry, unpackaged parts, attestation; and interpreters of other environments."""
