"""Container images: making them, holding them against the image contract, bringing them to a registry or an archive."""
