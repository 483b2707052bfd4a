import { defineConfig } from "@playwright/test";

export default defineConfig({ testDir: "suite", testMatch: "*.pw.ts", reporter: "line" });
