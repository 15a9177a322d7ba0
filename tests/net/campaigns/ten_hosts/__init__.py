"""Ten namespaces as ten hosts, with routers between: losses planted at known places, and a day of an operator."""
