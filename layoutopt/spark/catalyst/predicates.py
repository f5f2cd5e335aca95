"""Stub."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import TRUE, Node, Col, InSet, conjunction
from layoutopt.model.values import ValueSet
from layoutopt.model.schema import Schema
from layoutopt.model.udf import Udfs
import base64

@dataclass(frozen=True)
class Condition:
    root: Node
    unusable: tuple[Any, ...]
    settings: Settings

def read_condition(tree: Any, schema: Schema, settings: Settings, udfs: Udfs) -> Condition:
    return Condition(_read(tree, schema), (), settings)

def _read(t, schema):
    k, ty, ch, d = t
    if k == "And":
        return conjunction([_read(c, schema) for c in ch])
    try:
        if k in ("EqualTo","LessThan","GreaterThan","GreaterThanOrEqual","LessThanOrEqual"):
            c, l = ch
            if c[0]=="AttributeReference" and l[0]=="Literal" and "name" in c[3]:
                v = l[3]["value"]
                if isinstance(v, dict): v = base64.b64decode(v["text"]).decode()
                p = ValueSet.point(v); (lo,hi), = p.intervals
                vs = {"EqualTo": p, "LessThan": ValueSet.interval(None, lo),"LessThanOrEqual": ValueSet.interval(None, hi),"GreaterThan": ValueSet.interval(hi,None),"GreaterThanOrEqual": ValueSet.interval(lo,None)}[k]
                return InSet(Col(c[3]["name"], schema.find(c[3]["name"]).type), vs)
    except Exception as e:
        pass
    return TRUE
