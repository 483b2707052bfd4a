import { defineConfig } from "@playwright/test";

export default defineConfig({
  fullyParallel: true,
  projects: [{ name: "left" }, { grep: /passes/, name: "right" }],
  reporter: "line",
  testMatch: "*.playwright.ts",
  workers: 2,
});
