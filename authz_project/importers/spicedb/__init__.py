"""Read schemas, relationships and validation files of SpiceDB."""
