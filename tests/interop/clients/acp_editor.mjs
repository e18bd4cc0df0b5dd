// An editor on the TypeScript SDK of ACP: it starts an agent, prompts it, and serves what the agent asks of it.
//
// The plan is one JSON object on the command line, the report one on stdout. For each of `consents` there is a session
// of its own with one prompt, in which that kind of option is chosen whenever permission is asked, or the question is
// cancelled where none is of that kind. `discovers`, `serves` and `files` say what the editor offers: tools by the
// extension, an MCP server over ACP, files.

import { spawn } from "node:child_process";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { fromMcpServer } from "@agentclientprotocol/sdk/experimental/mcp-server";
import { client, McpOverAcpProvider, methods, ndJsonStream, PROTOCOL_VERSION, RequestError } from "@agentclientprotocol/sdk/unstable";
import { fromJsonSchema, McpServer } from "@modelcontextprotocol/server";

const plan = JSON.parse(process.argv[2]);
const report = { turns: [] };
let turn;

const rename = {
  name: "rename_symbol",
  kind: "edit",
  description: "Rename a symbol in all files of the project.",
  parameters: {
    type: "object",
    properties: { old_name: { type: "string" }, new_name: { type: "string" } },
    required: ["old_name", "new_name"],
    additionalProperties: false,
  },
  requiresPermission: true,
  categories: ["refactoring"],
};

/** Renames on disk; gives the files before and after. */
async function renamed({ old_name: oldName, new_name: newName }) {
  const diffs = [];
  for (const file of (await readdir(plan.cwd)).filter((name) => name.endsWith(".py")).sort()) {
    const path = join(plan.cwd, file);
    const oldText = await readFile(path, "utf8");
    const newText = oldText.replaceAll(new RegExp(`\\b${oldName}\\b`, "g"), newName);
    if (newText !== oldText) {
      await writeFile(path, newText);
      diffs.push({ path, oldText, newText });
    }
  }
  return diffs;
}

const asTheyCome = (params) => params;
const provider = new McpOverAcpProvider();
const editor = client({ name: "editor" })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    turn.asked.push(params);
    const chosen = params.options.find((option) => option.kind === turn.consent);
    return { outcome: chosen ? { outcome: "selected", optionId: chosen.optionId } : { outcome: "cancelled" } };
  })
  .onRequest(methods.client.fs.readTextFile, async ({ params }) => {
    turn.read.push(params.path);
    const lines = (await readFile(params.path, "utf8")).split("\n");
    const from = (params.line ?? 1) - 1;
    return { content: lines.slice(from, params.limit ? from + params.limit : undefined).join("\n") };
  })
  .onRequest(methods.client.fs.writeTextFile, async ({ params }) => {
    turn.written.push(params.path);
    await writeFile(params.path, params.content);
    return {};
  })
  .onRequest("_toolcrib/discover_tools", asTheyCome, () => {
    turn.discovered += 1;
    return { tools: [rename] };
  })
  .onRequest("_toolcrib/call_tool", asTheyCome, async ({ params }) => {
    turn.called.push(params);
    if (params.name !== rename.name) {
      throw RequestError.invalidParams({ name: params.name });
    }
    const diffs = await renamed(params.arguments);
    return {
      content: [{ type: "text", text: `Renamed in ${diffs.length} files.` }],
      structuredContent: { files: diffs.length },
      _meta: { toolcrib: { diffs, locations: diffs.map(({ path }) => ({ path, line: 1 })) } },
    };
  })
  .onRequest(methods.client.mcp.message, (context) => {
    turn.served.push(context.params.method);
    return provider.handleRequest(context);
  })
  .onNotification(methods.client.session.update, ({ params }) => {
    turn.updates.push(params.update);
  })
  .onNotification("*", () => {});

/** An MCP server of the MCP SDK, in this program. */
function dictionary() {
  const server = new McpServer({ name: "dictionary", version: "1" });
  server.registerTool(
    "look_up",
    {
      description: "Say what a word of the workshop means.",
      inputSchema: fromJsonSchema({ type: "object", properties: { word: { type: "string" } }, required: ["word"] }),
    },
    ({ word }) => ({ content: [{ type: "text", text: word === "kerf" ? "The slit that a saw makes." : "Unknown." }] }),
  );
  return server;
}

const agent = spawn(plan.command, plan.args, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => agent.once("exit", (code, signal) => resolve(signal ?? code)));
const connection = editor.connect(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)));
try {
  const ask = (method, params) => connection.agent.request(method, params);
  report.initialized = await ask(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientInfo: { name: "editor", version: "1" },
    clientCapabilities: {
      ...(plan.files && { fs: { readTextFile: true, writeTextFile: true } }),
      ...(plan.discovers && { _meta: { toolcrib: { discoverTools: true } } }),
    },
  });
  const mcpServers = [];
  if (plan.serves && report.initialized.agentCapabilities?.mcpCapabilities?.acp) {
    const { handler } = fromMcpServer(dictionary);
    mcpServers.push(provider.registerServer(connection.agent, { name: "dictionary", handler }).declaration);
  }
  for (const consent of plan.consents) {
    turn = { consent, asked: [], discovered: 0, called: [], read: [], written: [], served: [], updates: [] };
    report.turns.push(turn);
    const { sessionId } = await ask(methods.agent.session.new, { cwd: plan.cwd, mcpServers });
    const prompt = [{ type: "text", text: "Go." }];
    turn.answer = await ask(methods.agent.session.prompt, { sessionId, prompt });
  }
} finally {
  agent.stdin.end();
  report.exit = await ended;
  connection.close();
}
console.log(JSON.stringify(report));
