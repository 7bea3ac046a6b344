"""Experience between processes and machines, and batches straight from many senders."""

from headrace.server.batch_queue import BatchQueue
from headrace.server.queue_core import BatchQueueInfo

__all__ = ["BatchQueue", "BatchQueueInfo"]
