"""The API of commands and notebooks: connect, load, plan, pools, jobs, run."""
