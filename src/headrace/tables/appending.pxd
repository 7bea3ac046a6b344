from headrace.kernels.kinds cimport *
from headrace.store.commit cimport Lanes
from headrace.tables.cutting cimport Cutter
from headrace.tables.inserting cimport insert_rows
from headrace.tables.items cimport Items
