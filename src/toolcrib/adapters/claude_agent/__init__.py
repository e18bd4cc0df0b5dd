"""The adapter for Claude through the Claude Agent SDK, whose program runs the loop itself."""

from toolcrib.adapters.claude_agent.adapter import ClaudeAgentAdapter as ClaudeAgentAdapter
