#!/usr/bin/env bash
# pyodps reads and writes a DECIMAL(p,0) of MaxCompute with 18 digits after the point when it uses Arrow.
#
# Versions: pyodps 0.13.2, pyarrow 26.0.1; Python 3.11.
# Behaviour: `odps/tunnel/io/types.py` takes the default scale, 18, where the type says 0 (`scale or default`). The
#   messages of the tunnel have no schema, so a client that has the wrong scale reads a wrong number: a 5 of
#   DECIMAL(10,0) is read as 5E-18, and a 5 that is written is sent as 5000000000000000000. Records are right.
# Expected: decimal128(10, 0).
#
# Output:
#   DECIMAL(10,0) in Arrow: decimal128(10, 18)
#   the tunnel sends 5, pyodps reads 5E-18
#   pyodps writes 5, the tunnel gets 5000000000000000000
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyodps==0.13.2 pyarrow==26.0.1 pandas==3.1.1
cat > "$folder/show.py" <<'PYTHON'
import io
import sys
from decimal import Decimal

import pyarrow as pa
from odps.models import TableSchema
from odps.tunnel.io.reader import TunnelArrowReader
from odps.tunnel.io.types import odps_schema_to_arrow_schema
from odps.tunnel.io.writer import BaseArrowWriter


def schema(type_):
    return TableSchema.from_lists(["a"], [type_])


def written(type_, value, arrow_type):
    out = io.BytesIO()
    writer = BaseArrowWriter(schema(type_), out)
    writer.write(pa.table({"a": pa.array([value], arrow_type)}))
    writer.close()
    return out.getvalue()


def read(type_, body):
    return TunnelArrowReader(schema(type_), lambda *args, **kwargs: io.BytesIO(body)).read().to_pylist()[0]["a"]


arrow_type = odps_schema_to_arrow_schema(schema("decimal(10,0)")).field(0).type
print(f"DECIMAL(10,0) in Arrow: {arrow_type}")
# In memory a decimal number is a whole number, which the scale divides: 5E-18 of (38,18) has the bytes of 5 of (10,0).
sent = written("decimal(38,18)", Decimal("5E-18"), pa.decimal128(38, 18))
received = read("decimal(10,0)", sent)
print(f"the tunnel sends 5, pyodps reads {received}")
body = written("decimal(10,0)", Decimal(5), pa.decimal128(10, 0))
arrived = int(read("decimal(38,18)", body) * 10**18)
print(f"pyodps writes 5, the tunnel gets {arrived}")
sys.exit(not (arrow_type == pa.decimal128(10, 18) and received == Decimal("5E-18") and arrived == 5 * 10**18))
PYTHON
"$folder/venv/bin/python" "$folder/show.py"
