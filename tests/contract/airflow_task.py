"""One run of Airflow's AzureBatchOperator, as a DAG's task does it; its connection comes from the environment."""

from airflow.providers.microsoft.azure.operators.batch import AzureBatchOperator

operator = AzureBatchOperator(
    task_id="train",
    batch_pool_id="pool",
    batch_pool_vm_size="standard_d2_v3",
    batch_job_id="job",
    batch_task_id="task",
    batch_task_command_line="exit 0",
    vm_publisher="microsoft-dsvm",
    vm_offer="ubuntu-hpc",
    vm_sku="2204",
    vm_node_agent_sku_id="batch.node.ubuntu 22.04",
    target_dedicated_nodes=1,
    should_delete_job=True,
    should_delete_pool=True,
)
operator.execute({})
