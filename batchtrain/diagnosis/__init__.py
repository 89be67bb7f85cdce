"""Why a job or a pool does not do what the user expects: named rules over one record. Pure."""
