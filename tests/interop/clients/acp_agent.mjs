// An agent on the TypeScript SDK of ACP: it asks of the editor what a prompt says, and says what it was answered.
//
// A prompt is the JSON of a list of steps, `[method, params]` each, what is said a list of their answers. A session's id
// is put into the params; `mcp` as the method sends a request of MCP, `{server, method, params}`, to a server over ACP.

import { Readable, Writable } from "node:stream";
import { agent, McpOverAcpCaller, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk/unstable";

const caller = new McpOverAcpCaller({ clientInfo: { name: "agent", version: "1" } });
let servers = [];

async function answered(editor, sessionId, [method, params]) {
  try {
    if (method !== "mcp") {
      return await editor.request(method, { sessionId, ...params });
    }
    const { serverId } = servers.find((server) => server.name === params.server);
    return await caller.request(editor, serverId, params.method, params.params);
  } catch (error) {
    return { code: error.code, message: error.message };
  }
}

agent({ name: "agent" })
  .onRequest(methods.agent.initialize, ({ params }) => ({
    protocolVersion: PROTOCOL_VERSION,
    agentInfo: { name: "agent", version: "1" },
    agentCapabilities: { mcpCapabilities: { acp: true } },
    _meta: { heard: params.clientCapabilities },
  }))
  .onRequest(methods.agent.session.new, ({ params }) => {
    servers = params.mcpServers;
    return { sessionId: "one" };
  })
  .onRequest(methods.agent.session.prompt, async ({ params: { sessionId, prompt }, client: editor }) => {
    const answers = [];
    for (const step of JSON.parse(prompt[0].text)) {
      answers.push(await answered(editor, sessionId, step));
    }
    const content = { type: "text", text: JSON.stringify(answers) };
    await editor.notify(methods.client.session.update, {
      sessionId,
      update: { sessionUpdate: "agent_message_chunk", content },
    });
    return { stopReason: "end_turn" };
  })
  .onNotification(methods.agent.mcp.message, caller.handleNotification)
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
