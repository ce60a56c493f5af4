"""Finds plugins and resolves names: discovery, registry, unpackaged parts, attestation."""
