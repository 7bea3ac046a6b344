"""The side that fills leased pages: its steps, their marks, and its reports. Only NumPy is needed here."""
