import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/header.css";
import "./style/panels.css";
import "./style/numbers.css";
import "./style/small.css";
import { App } from "./app.tsx";
import { Store } from "./store.ts";
import { startTheme } from "./theme.ts";
import { takeToken } from "./control.ts";

takeToken();
// Relative to the page, so that it works behind a proxy with a path of its own.
const url = new URL("ws", location.href);
url.protocol = url.protocol.replace("http", "ws");
url.hash = "";
const store = new Store(url.href);
const root = document.getElementById("page");
if (root) {
  const draw = () => render(<App store={store} />, root);
  startTheme(draw);
  draw();
  store.start();
}
