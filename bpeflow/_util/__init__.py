"""Small tools without a home of their own: durable files, checksums, text, processors, memory, native libraries."""
