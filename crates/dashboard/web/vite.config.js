import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

/** Libraries in the bundle, whose licences require that their notices accompany copies. */
const BUNDLED = ["preact", "uplot"];

function notice(name) {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  const text = readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim().replaceAll("\r\n", "\n");
  return `${name} ${version} (${license})\n\n${text}\n`;
}

/** Puts the notices before the code, after comments were removed from it. */
function licenses() {
  return {
    name: "licenses",
    enforce: "post",
    generateBundle(_, bundle) {
      const notices = ["Libraries in app.js and app.css:\n", ...BUNDLED.map(notice)].join("\n");
      for (const file of Object.values(bundle)) {
        if (file.type === "chunk") file.code = `/*!\n${notices}*/\n${file.code}`;
      }
    },
  };
}

// Fixed names without hashes: the program embeds these files, and a test compares them with a new build.
export default defineConfig({
  base: "./",
  plugins: [licenses()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    outDir: "dist",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    sourcemap: false,
    reportCompressedSize: false,
    rolldownOptions: {
      output: { entryFileNames: "app.js", assetFileNames: "app.[ext]", codeSplitting: false },
    },
  },
});
