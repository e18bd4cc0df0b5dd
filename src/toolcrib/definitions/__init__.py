"""Works with tool definitions: finds changes and problems, and makes grammars."""
