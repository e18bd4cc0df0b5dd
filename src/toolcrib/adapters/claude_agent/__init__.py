"""Claude through the Claude Agent SDK, whose program loops by itself."""

from toolcrib.adapters.claude_agent.adapter import ClaudeAgentAdapter as ClaudeAgentAdapter
