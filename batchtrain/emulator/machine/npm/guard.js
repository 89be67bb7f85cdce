// Ends Azurite with the emulator: standard input is a pipe from it, which the kernel closes however the emulator ends.
process.stdin.resume();
process.stdin.once("end", () => {
  process.kill(process.pid, "SIGTERM"); // Azurite then stores what it has in memory
  setTimeout(() => process.exit(1), 10000).unref();
});
