"""Where steps live: arena, pages, the window function, gather."""
