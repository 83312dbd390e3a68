// Mock of the program: serves the page of dist/ with the same headers, and sends realistic messages.
//   node mock/server.mjs [--port 8080] [--no-loss] [--malformed] [--seconds 600]
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { WebSocketServer } from "ws";
import { encode, KINDS } from "./pictures.mjs";
import { Run } from "./run.mjs";

const DIST = join(dirname(dirname(fileURLToPath(import.meta.url))), "dist");
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const FILES = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/app.js": ["app.js", "text/javascript; charset=utf-8"],
  "/app.css": ["app.css", "text/css; charset=utf-8"],
};
const STATUS_MS = 250;
export const TOKEN = "mock-token";

/** Starts a server. Returns its port and a function that ends it. */
export async function serve({ port = 0, hasLoss = true, isMalformed = false, seconds = 600 } = {}) {
  const run = new Run({ hasLoss, seconds });
  const server = createServer((request, response) => answer(run, request, response));
  const sockets = new WebSocketServer({ server, path: "/ws" });
  sockets.on("connection", (socket) => follow(run, socket, isMalformed));
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  const close = () => {
    for (const socket of sockets.clients) socket.terminate();
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { port: server.address().port, close };
}

function reply(response, status, type, body) {
  response.writeHead(status, {
    "Content-Type": type,
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
  });
  response.end(body);
}

function answer(run, request, response) {
  const { pathname } = new URL(request.url, "http://localhost");
  const json = (status, value) => reply(response, status, "application/json", JSON.stringify(value));
  if (FILES[pathname]) return reply(response, 200, FILES[pathname][1], readFileSync(join(DIST, FILES[pathname][0])));
  if (pathname === "/metrics") return reply(response, 200, "text/plain", "shotline_mock 1\n");
  if (pathname === "/api/status") return json(200, run.status());
  if (pathname === "/api/about") return json(200, run.about(pictures()));
  if (pathname === "/api/control" && request.method === "POST") return control(run, request, json);
  return reply(response, 404, "text/plain", "not found\n");
}

function control(run, request, json) {
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    if (request.headers.authorization !== `Bearer ${TOKEN}`)
      return json(401, { error: "the token is missing or wrong" });
    const result = run.control(JSON.parse(body));
    json(result.error ? 409 : 200, result);
  });
}

function pictures() {
  return Object.entries(KINDS).map(([kind, [label, about]]) => ({ kind, label, about }));
}

function follow(run, socket, isMalformed) {
  let watched = [];
  const sequences = new Map();
  socket.on("message", (text) => (watched = JSON.parse(text).watch ?? []));
  socket.send(JSON.stringify({ about: run.about(pictures()) }));
  const status = () => socket.send(JSON.stringify({ status: run.status() }));
  status();
  const timers = [setInterval(status, STATUS_MS)];
  for (const [kind, [, , rate]] of Object.entries(KINDS)) {
    timers.push(
      setInterval(() => {
        if (!watched.includes(kind) || run.phase() !== "running" || socket.bufferedAmount > 4e6) return;
        const sequence = (sequences.get(kind) ?? 0) + 1;
        sequences.set(kind, sequence);
        socket.send(encode(kind, sequence, run.shots(), run.seconds()));
      }, 1000 / rate),
    );
  }
  if (isMalformed) timers.push(setInterval(() => sendGarbage(socket), 1500));
  socket.on("close", () => timers.forEach(clearInterval));
}

function sendGarbage(socket) {
  socket.send("{");
  socket.send(JSON.stringify({ status: { seconds: "late" } }));
  socket.send(Buffer.from([1, 2]));
  socket.send(Buffer.from([8, 0, 0, 0, 123, 125, 32, 32, 32, 32, 32, 32, 1]));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const words = process.argv.slice(2);
  const number = (name, value) => (words.includes(name) ? Number(words[words.indexOf(name) + 1]) : value);
  const options = {
    hasLoss: !words.includes("--no-loss"),
    isMalformed: words.includes("--malformed"),
    seconds: number("--seconds", 600),
  };
  const { port } = await serve({ port: number("--port", 8080), ...options });
  console.log(`http://127.0.0.1:${port}/#token=${TOKEN}`);
}
