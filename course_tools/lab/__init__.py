"""``course lab``: JupyterLab on the lessons."""
