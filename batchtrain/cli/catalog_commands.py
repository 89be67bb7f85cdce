"""The commands of `batchtrain catalog`: their parameters, and the function of each."""

from __future__ import annotations

from click import Choice, argument, option

from batchtrain.cli.help import Action, Table

_everything = option("--all", "everything", is_flag=True, help="Include retired entries.")
_going = option("--retired", is_flag=True, help="Only retired entries, or entries with a retirement date.")
COMMANDS: Table = {
    "images": Action(
        "catalog.images",
        argument("pattern", required=False),
        option("--gpu", is_flag=True, help="Only those with a GPU driver."),
        option("--rdma", is_flag=True, help="Only those with InfiniBand drivers."),
        option("--docker", is_flag=True, help="Only those with a container engine."),
        option("--os", "system", type=Choice(["linux", "windows"]), help="Only this operating system."),
        _going,
        _everything,
    ),
    "refresh": Action(
        "catalog_refresh.refresh",
        option("--location", metavar="REGION", help="The region. Default: the region of the account."),
        option("--subscription", metavar="ID", help="The subscription. Default: the subscription of the account."),
        option("--prices", is_flag=True, help="Read the prices of the region instead. Needs no sign-in."),
        option("--currency", default="USD", show_default=True, metavar="CODE", help="Currency of the prices."),
        option("--to", "target", metavar="FILE", help="File to write. Default: the catalog.yaml of the user."),
    ),
    "sizes": Action(
        "catalog.sizes",
        argument("pattern", required=False),
        option("--gpu", is_flag=True, help="Only those with GPUs."),
        option("--infiniband", is_flag=True, help="Only those with InfiniBand."),
        option("--vendor", type=Choice(["nvidia", "amd"]), help="Only those with GPUs of this vendor."),
        option("--family", metavar="SERIES", help="Only this series, such as `ND H100 v5` or HBv3."),
        _going,
        _everything,
    ),
}
