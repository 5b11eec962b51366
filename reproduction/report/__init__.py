"""From records to tables and figures; nothing is computed here."""
