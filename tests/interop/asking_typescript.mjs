// Test host: the TypeScript SDK's client, which can be asked for a form, a model and roots. Prints one JSON object.
//
// Usage: asking_typescript.mjs ERA PLAN COMMAND [ARG…] or URL, with ERA `legacy` or `auto`. Knows nothing of the gateway; run by
// interop.py from the folder its packages are installed in.

import { readFileSync } from 'node:fs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, planFile, command, ...args] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(planFile, 'utf8'));
const client = new Client(
  { name: 'interop-asking', version: '1' },
  {
    capabilities: { elicitation: {}, sampling: {}, roots: {} },
    ...(era === 'auto' ? { versionNegotiation: { mode: 'auto' } } : {}),
  },
);
const asked = [];
const updated = new Set();
client.setRequestHandler('elicitation/create', async (request) => {
  asked.push(['elicitation', request.params.message]);
  return { action: 'accept', content: { name: 'Ada' } };
});
client.setRequestHandler('sampling/createMessage', async (request) => {
  const { content } = request.params.messages[0];
  asked.push(['sampling', (Array.isArray(content) ? content[0] : content).text]);
  return { role: 'assistant', content: { type: 'text', text: 'sampled' }, model: 'none' };
});
client.setRequestHandler('roots/list', async () => {
  asked.push(['roots', '']);
  return { roots: [{ uri: 'file:///srv/docs', name: 'docs' }] };
});
client.setNotificationHandler('notifications/resources/updated', (note) => void updated.add(note.params.uri));
await client.connect(
  command.startsWith('http://')
    ? new StreamableHTTPClientTransport(new URL(command))
    : new StdioClientTransport({ command, args, stderr: 'inherit' }),
);
const modern = client.getNegotiatedProtocolVersion() > '2026';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function until(what, limit = 30_000) {
  const end = Date.now() + limit;
  while (!what() && Date.now() < end) await pause(50);
  return what();
}

let tools = [];
await (async () => {
  const end = Date.now() + 30_000;
  while (!plan.awaited.every((name) => tools.includes(name)) && Date.now() < end) {
    tools = (await client.listTools(undefined, { cacheMode: 'bypass' })).tools.map((tool) => tool.name);
    await pause(200);
  }
})();

const progress = [];
const onprogress = (note) => progress.push(note.progress);
const results = [];
for (const call of plan.calls) {
  // The client tells of its own rounds in the same way.
  results.push(await client.callTool(call, call.name === plan.slow ? { onprogress } : {}));
}
const seen = [...progress];

// Given up in the middle: no answer, and the server is well after that.
const stop = new AbortController();
const slow = client
  .callTool({ name: plan.slow, arguments: { duration: 60, steps: 600 } }, { onprogress, signal: stop.signal })
  .then(() => false, () => true);
const moved = await until(() => progress.length > seen.length);
stop.abort();
const cancelled = moved && (await slow);
await client.callTool(plan.calls[0]);

const toggle = () => client.callTool({ name: plan.toggle, arguments: {} });
if (modern) {
  const stream = await client.listen({ resourceSubscriptions: [plan.resource] });
  await toggle();
  await until(() => updated.size > 0);
  await stream.close();
} else {
  await client.subscribeResource({ uri: plan.resource });
  await toggle();
  await until(() => updated.size > 0);
  await client.unsubscribeResource({ uri: plan.resource });
}
await toggle();
const version = client.getNegotiatedProtocolVersion();
await client.close();
process.stdout.write(
  JSON.stringify({ version, tools, results, asked, progress: seen, cancelled, updated: [...updated] }) + '\n',
);
