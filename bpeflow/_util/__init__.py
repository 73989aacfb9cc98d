"""Small tools without a room of their own: durable files, text, memory, native and optional libraries."""
