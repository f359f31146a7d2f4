"""What is stored: frozen values, the keys they are stored under, and their codec."""
