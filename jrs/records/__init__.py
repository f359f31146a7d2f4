"""The stored records: frozen values, their keys and their codec."""
