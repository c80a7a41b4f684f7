"""The models that are looked at: loaded, recorded, and with some heads silenced."""
