"""Tables, plots and exports of finished runs."""
