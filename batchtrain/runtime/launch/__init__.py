"""The node launcher: starts the processes of a gang on every node, joins their output, and ends them together.

    python3 -I -S -B launch primary        on the primary; reads gang.json beside the directory `launch`

It travels with the task: standard library only, Python 3.6 and later. Of `frameworks`, only the file that the gang
needs travels. On a node this package is `launch/launch`, below a `launch/__main__.py` that imports it. The processes it
makes:

* the *primary* has the plan and the screen. It starts one *supervisor* on each node, through ssh or by a fork, and
  talks to it over that ssh's stdin and stdout: no port of its own, nothing secret on a command line, and an end of
  file when the other side is gone.
* a *supervisor* starts its node's processes, forwards what they print, and tells how they end. It is their
  subreaper: what they leave behind, daemons in sessions of their own included, becomes its child.
* a *guard* is the supervisor's parent. It ends what is left when the supervisor itself is killed or stopped.

Every one is a single loop over events: nothing blocks for long and nothing waits for the end of a stream, which an
orphan may hold open for ever. Sources of the frameworks' variables: docs of torchrun, DeepSpeed, JAX, TensorFlow
(TF_CONFIG), MXNet (ps-lite) and Horovod; what was measured with each stands in the project's tests.
"""
