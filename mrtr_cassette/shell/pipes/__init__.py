"""Lines on pipes, and the processes behind them."""
