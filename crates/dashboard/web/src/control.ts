/** Controls of the program, and the token that permits them. */

const KEY = "shotline-token";
let token = "";

/** Takes the token from the fragment of the address, and removes it from there: addresses are shared and remembered. */
export function takeToken(): void {
  try {
    token = sessionStorage.getItem(KEY) ?? "";
  } catch {
    // Without storage the token is kept until the page is closed.
  }
  takeFragment();
  addEventListener("hashchange", takeFragment);
}

function takeFragment(): void {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  setToken(found);
  history.replaceState(null, "", location.pathname + location.search);
}

export function setToken(value: string): void {
  token = value.trim();
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // See takeToken.
  }
}

export function hasToken(): boolean {
  return token !== "";
}

export interface ControlResult {
  isDone: boolean;
  text: string;
}

/** Requests an action, with the fields that it takes. Never throws. */
export async function request(action: string, fields: Record<string, number> = {}): Promise<ControlResult> {
  try {
    const reply = await fetch("api/control", {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify({ action, ...fields }),
    });
    if (reply.status === 401) setToken("");
    return result(reply.ok, reply.status, await reply.text());
  } catch (error) {
    return {
      isDone: false,
      text: `The program cannot be reached: ${error instanceof Error ? error.message : String(error)}`,
    };
  }
}

function result(isDone: boolean, status: number, body: string): ControlResult {
  try {
    const reply = JSON.parse(body) as { done?: unknown; error?: unknown };
    const text = isDone ? reply.done : reply.error;
    if (typeof text === "string") return { isDone, text };
  } catch {
    // The status says enough.
  }
  return { isDone, text: isDone ? "Done" : `Refused with status ${status}` };
}
