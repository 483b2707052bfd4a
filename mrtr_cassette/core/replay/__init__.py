"""From a request to its recorded reply, or to why there is none."""
