"""``offbeat demo``: a server and clients, some of which are killed on the way."""

from pathlib import Path

from offbeat.cli.demo.demo_run import Say, accuracy_line, dataset_or_digits, demo_run


def run_demo(
    say: Say,
    folder: Path = Path("runs/demo"),
    *,
    data: str = "fashion-mnist",
    clients: int = 8,
    versions: int = 80,
    steps: int = 100,
) -> None:
    """Run a demo; for folder, processes and signals see ``demo_run``."""
    with demo_run(say, folder, clients, versions) as run:
        dataset = dataset_or_digits(data, say)
        say(f"A server and {clients} clients learn {dataset.name}, each in a process of its own")
        run.write_server_file(data=dataset.name, steps=steps)
        run.start_server()
        run.join()
        run.kill([f"client-{clients // 3}", "server", f"client-{2 * clients // 3}", "server"])
        final = run.final_status()
        say(
            f"{final['counted']} updates counted; they were {final['mean_staleness']:.1f} versions old on average, "
            f"{final['max_staleness']} at most"
        )
        say("Killed: 2 clients, 2 times the server")
        say(accuracy_line(final, dataset))
