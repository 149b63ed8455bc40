"""What must hold between the parts of a scenario: which size must divide which, and what would be valid.

Knows arithmetic and the rules of the frameworks. Does not know files: a finding names a field, and
whoever has the text finds the line. Which rule needs which parts is in consistency.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...hardware.catalogue import unknown_name
from ...hardware.files import FileError
from ...hardware.gpus import get_gpu, gpu_names
from ...hardware.interconnect import interconnect_names, networks_between_hosts, offered_interconnects
from .checks_power import measured_products_count, power_limit_is_possible
from .finding import Finding, choices, divisors, neighbours
from .machine import REGULAR_FABRICS, cluster_of, gpu_as_sold, gpus_of_job, interconnect_of, node_of
from .price import price_of
from .schedules import traits_of

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from .blocks import ClusterSpec, Parallelism, Training
    from .model.model import Model


MOST_MICROBATCHES = 1_000_000
"""Most microbatches of a step, each of which is replayed on every stage; published steps have a few
thousand."""


def hardware_exists(cluster: ClusterSpec) -> Iterator[Finding]:
    """Catalogue keys are known, and a job of several hosts has a network."""
    yield from names_exist(cluster.gpu, cluster.interconnect)
    if is_known(cluster.gpu, gpu_names()):
        held = node_of(cluster).max_gpus
        if cluster.gpus_per_node > held:
            message = f"a host with {cluster.gpu_name} holds up to {held} GPUs, not {cluster.gpus_per_node}"
            yield Finding(path=("cluster", "gpus_per_node"), message=message)
        if cluster.price_list and cluster.price_per_gpu_hour is None:
            try:
                price_of(cluster)
            except ValueError as error:
                yield Finding(path=("cluster", "price_list"), message=str(error))
        yield from power_limit_is_possible(cluster)
        yield from measured_products_count(cluster)
        yield from nvlink_is_there(cluster)
    if not is_known(cluster.interconnect, interconnect_names()):
        return
    if interconnect_of(cluster).kind == "none" and not inside_one_domain(cluster):
        yield Finding(
            path=("cluster", "interconnect"),
            message=f"{cluster.interconnect_name} means a job inside one NVLink domain, but {cluster.gpus}"
            f" GPUs span several; name the network between them: {', '.join(networks_between_hosts())}",
        )
    elif cluster.fabric.kind == "nvlink" and not inside_one_domain(cluster):
        message = f"nvlink does not join {cluster.gpus} GPUs; choose rail-optimized or fat-tree"
        yield Finding(path=("cluster", "fabric", "kind"), message=message)


def nvlink_is_there(cluster: ClusterSpec) -> Iterator[Finding]:
    """Only links that GPUs have can be faster."""
    faster = cluster.what_if is not None and cluster.what_if.nvlink != 1.0
    if faster and gpu_as_sold(cluster).nvlink_domain < 2:
        message = f"{cluster.gpu_name} has no NVLink, its GPUs meet over PCIe; leave it out"
        yield Finding(path=("cluster", "what_if", "nvlink"), message=message)


def names_exist(gpu: object, interconnect: object) -> Iterator[Finding]:
    """GPU and network are keys of their catalogues. Values that are no text are left to the checks of
    types."""
    if isinstance(gpu, str) and gpu not in gpu_names():
        try:
            get_gpu(gpu)
        except ValueError as error:
            yield Finding(path=("cluster", "gpu"), message=str(error), alone=True)
    if isinstance(interconnect, str) and interconnect not in interconnect_names():
        message = str(unknown_name("interconnect", interconnect, offered_interconnects()))
        yield Finding(path=("cluster", "interconnect"), message=message, alone=True)


def hosts_are_full(cluster: ClusterSpec) -> Iterator[Finding]:
    """A job takes a part of one host, or whole hosts."""
    if cluster.gpus > cluster.gpus_per_node and cluster.gpus % cluster.gpus_per_node:
        yield Finding(
            path=("cluster", "gpus"),
            message=f"{cluster.gpus} GPUs do not fill hosts of {cluster.gpus_per_node};"
            f" gpus can be {neighbours(cluster.gpus, cluster.gpus_per_node)}",
        )


def domains_are_whole_hosts(cluster: ClusterSpec) -> Iterator[Finding]:
    """Check that a job uses whole hosts of an NVLink domain that has several."""
    used, each = cluster.gpus_per_domain, cluster.gpus_per_node
    if used is None or not is_known(cluster.gpu, gpu_names()):
        return
    node, path = node_of(cluster), ("cluster", "gpus_per_domain")
    if node.hosts_per_domain == 1:
        yield Finding(
            path=path,
            message=f"NVLink of {cluster.gpu_name} ends at the host; leave it out, and set gpus_per_node",
        )
    elif used % each or used > node.hosts_per_domain * each:
        yield Finding(
            path=path,
            message=f"{used} must be whole hosts: a multiple of gpus_per_node from {each} to"
            f" {node.hosts_per_domain * each}, the {node.hosts_per_domain} hosts of an NVLink domain",
        )


def fabric_is_sound(cluster: ClusterSpec) -> Iterator[Finding]:
    """The switches can be wired so, the graph file can be read, and every rank has a GPU."""
    fabric = cluster.fabric
    plain = fabric.kind in REGULAR_FABRICS
    if not plain and not interconnect_of(cluster).connects_hosts:
        message = (
            f"{cluster.interconnect_name} has no switches, so nothing would read the {fabric.kind} fabric;"
            " name the network between hosts (cluster.interconnect), or leave fabric out"
        )
        yield Finding(path=("cluster", "fabric", "kind"), message=message)
        return
    if plain and fabric.model_fields_set <= {"kind", "oversubscription"} and cluster.placement is None:
        return  # nothing but what step times read, and check, themselves
    try:
        built = cluster_of(cluster)
        _wire(built, regular=plain)
    except FileError as error:
        yield Finding(path=("cluster", "fabric", "file"), message=str(error))
        return
    except ValueError as error:
        yield Finding(path=("cluster", "fabric"), message=str(error))
        return
    if cluster.placement is None:
        return
    try:
        gpus_of_job(cluster, built)
    except ValueError as error:
        yield Finding(path=("cluster", "placement"), message=str(error))


def _wire(built: Cluster, *, regular: bool) -> object:
    """Work out the switches of a fabric, and the links of an irregular one, so that what is wrong shows."""
    return built.switches, None if regular else built.topology


def placed_by_speed_alone(cluster: ClusterSpec) -> Iterator[Finding]:
    """Ranks are placed by speed, or otherwise."""
    if cluster.variation is None or not cluster.variation.by_speed:
        return
    for name in ("placement", "other_gpus", "neighbours"):
        if getattr(cluster, name) is not None:
            message = f"it places ranks anew, and cluster.{name} says where hosts are; leave one out"
            yield Finding(path=("cluster", "variation", "by_speed"), message=message)
            return


def inside_one_domain(cluster: ClusterSpec) -> bool:
    """Whether NVLink alone connects all GPUs of the job."""
    hosts = node_of(cluster).hosts_per_domain if is_known(cluster.gpu, gpu_names()) else 1
    return cluster.gpus <= nvlink_domain(hosts, cluster.gpus_per_node, cluster.gpus_per_domain)


def nvlink_domain(hosts: int, gpus_per_node: int, gpus_per_domain: int | None = None) -> int:
    """GPUs that a job may take without a network: those of a host, or of a rack (NVL72) as far as used;
    ``hosts`` are those that NVLink joins."""
    return hosts * gpus_per_node if gpus_per_domain is None else gpus_per_domain


def is_known(named: object, known: tuple[str, ...]) -> bool:
    """Whether it is a key of a catalogue, or a description, which its own type has checked."""
    return named in known if isinstance(named, str) else True


def layout_is_sound(par: Parallelism) -> Iterator[Finding]:
    """Rules inside the block ``parallelism``."""
    axes = par.order.split("-")
    if sorted(axes) != ["cp", "dp", "ep", "pp", "tp"]:
        message = (
            f"{par.order!r} must name tp, cp, ep, dp and pp once each, fastest first, as in tp-cp-ep-dp-pp"
        )
        yield Finding(path=("parallelism", "order"), message=message)
    if par.sequence_parallel and par.tp == 1:
        message = "there is nothing to shard over tp 1; set sequence_parallel: false, or tp to 2 or more"
        yield Finding(path=("parallelism", "sequence_parallel"), message=message)


def tensor_parallel_divides(
    model: Model, par: Parallelism, *, heads_are_shared: bool = False
) -> Iterator[Finding]:
    """tp splits heads, query groups, MLP columns and vocabulary rows evenly; where ``heads_are_shared``, each
    query group may have several ranks."""
    shared = {"num_attention_heads": model.num_attention_heads, "ffn_hidden_size": model.ffn_hidden_size}
    several = heads_are_shared and par.tp % model.num_query_groups == 0
    if model.attention != "mla" and not several:
        shared["num_query_groups"] = model.num_query_groups
    valid = choices(divisors(math.gcd(*shared.values())))
    split_badly = [f"{field} {size}" for field, size in shared.items() if size % par.tp]
    if split_badly:
        message = f"{par.tp} does not divide {' and '.join(split_badly)}; for this model tp can be {valid}"
        if len(split_badly) == 1 and par.tp % model.num_query_groups == 0 and "num_query_groups" in shared:
            message += (
                ", or a multiple of the groups with software.exchange.shared_kv_heads (Megatron core 0.16)"
            )
        yield Finding(path=("parallelism", "tp"), message=message)
    elif (rows := model.padded_for(par.tp).embedding_rows) % par.tp:
        stated = model.padded_vocab_size is not None
        yield Finding(
            path=("model", "padded_vocab_size" if stated else "vocab_size"),
            message=f"{rows} rows cannot be split over tp {par.tp}, and this software pads none; in the block"
            f" model set padded_vocab_size to a multiple of {par.tp}, such as {-(-rows // par.tp) * par.tp},"
            " or make_vocab_size_divisible_by to 128, which pads as Megatron does"
            " (model: {preset: NAME, padded_vocab_size: ...} where the model is a name or a file)",
        )


def experts_fit(model: Model, par: Parallelism) -> Iterator[Finding]:
    """Expert parallelism needs experts, and splits them evenly."""
    if model.moe is None:
        for field in ("ep", "etp"):
            size = getattr(par, field)
            if size > 1:
                message = f"{size} needs experts, but the model is dense; set {field} to 1 or give model.moe"
                yield Finding(path=("parallelism", field), message=message)
        return
    if par.tp > 1 and not par.sequence_parallel:
        message = "experts beside tensor parallelism need it, as in Megatron; set sequence_parallel: true"
        yield Finding(path=("parallelism", "sequence_parallel"), message=message)
    shared = model.moe.shared_expert_ffn_hidden_size
    if shared % par.tp:
        message = f"{par.tp} must divide shared_expert_ffn_hidden_size {shared}"
        yield Finding(path=("parallelism", "tp"), message=message)
    experts, width = model.moe.num_experts, model.moe.expert_ffn_hidden_size
    if experts % par.ep:
        message = f"{par.ep} must divide num_experts {experts}; ep can be {choices(divisors(experts))}"
        yield Finding(path=("parallelism", "ep"), message=message)
    if width % par.etp:
        message = (
            f"{par.etp} must divide expert_ffn_hidden_size {width}; etp can be {choices(divisors(width))}"
        )
        yield Finding(path=("parallelism", "etp"), message=message)


def world_size_matches(cluster: ClusterSpec, par: Parallelism) -> Iterator[Finding]:
    """gpus = tp * pp * cp * dp."""
    replica = par.tp * par.pp * par.cp
    product = f"tp × pp × cp = {par.tp} × {par.pp} × {par.cp} = {replica}"
    if cluster.gpus % replica:
        hosts = cluster.gpus_per_node if cluster.gpus > cluster.gpus_per_node else 1
        possible = neighbours(cluster.gpus, math.lcm(replica, hosts))
        message = f"{cluster.gpus} is not a multiple of {product}; gpus can be {possible}"
        yield Finding(path=("cluster", "gpus"), message=message)
    elif par.dp * replica != cluster.gpus:
        message = (
            f"{par.dp} replicas of {product} GPUs are {par.dp * replica}, but gpus is {cluster.gpus};"
            f" leave dp out or set it to {cluster.gpus // replica}"
        )
        yield Finding(path=("parallelism", "dp"), message=message)


def shards_fit(model: Model | None, par: Parallelism) -> Iterator[Finding]:
    """Shard groups and expert groups tile the data-parallel ranks."""
    shard, ranks = par.fsdp_shard_size, par.dp * par.cp
    if shard is not None and par.zero == 0:
        message = "zero 0 shards nothing; set zero to 1, 2 or 3, or leave fsdp_shard_size out"
        yield Finding(path=("parallelism", "fsdp_shard_size"), message=message)
    elif shard is not None and ranks % shard:
        message = f"{shard} must divide dp × cp = {ranks}; it can be {choices(divisors(ranks))}"
        yield Finding(path=("parallelism", "fsdp_shard_size"), message=message)
    experts = par.ep * par.etp
    if model and model.moe and (ranks * par.tp) % experts:
        message = f"ep × etp = {experts} must divide tp × cp × dp = {ranks * par.tp}"
        yield Finding(path=("parallelism", "ep"), message=message)


def heads_exchange(model: Model, par: Parallelism) -> Iterator[Finding]:
    """Ranks that exchange heads for tokens are a part of the cp group, and share a TP rank's heads."""
    a2a, path = par.cp_a2a, ("parallelism", "cp_a2a")
    if a2a is None:
        return
    heads = model.num_attention_heads // par.tp
    if par.cp % a2a:
        message = f"{a2a} must divide cp = {par.cp}; it can be {choices(divisors(par.cp))}"
        yield Finding(path=path, message=message)
    elif heads % a2a:
        message = f"{a2a} must divide the {heads} heads of a TP rank; it can be {choices(divisors(heads))}"
        yield Finding(path=path, message=message)


def batch_divides(par: Parallelism, training: Training, grouped: str | None) -> Iterator[Finding]:
    """global_batch = micro_batch * microbatches * dp; ``grouped``: the schedule that has groups of pp."""
    batch, together = training.global_batch, training.micro_batch * par.dp
    product = f"micro_batch × dp = {training.micro_batch} × {par.dp} = {together}"
    group = par.pp if grouped else 1
    valid = f"global_batch can be {neighbours(batch, together * group)}"
    if batch // together > MOST_MICROBATCHES:
        count = batch // together
        message = f"{batch} is {count} microbatches of {product}; at most {MOST_MICROBATCHES} are replayed"
        yield Finding(path=("training", "global_batch"), message=message)
    elif batch % together:
        message = f"{batch} is not a multiple of {product}; {valid}"
        yield Finding(path=("training", "global_batch"), message=message)
    elif batch // together % group:
        message = (
            f"{batch} sequences are {batch // together} microbatches of {product}, but {grouped} runs them"
        )
        message += f" in groups of pp = {group}; {valid}"
        yield Finding(path=("training", "global_batch"), message=message)


def sequence_divides(par: Parallelism, training: Training) -> Iterator[Finding]:
    """Sequence and context parallelism cut the sequence evenly.

    Each cp rank takes two slices, one from either end, to balance the causal mask.
    """
    parts = par.cp * 2 if par.cp > 1 else 1
    meaning = f"2 × cp = {parts}"
    if par.sequence_parallel:
        parts = math.lcm(parts, par.cp * par.tp)
        meaning = f"cp × tp = {par.cp * par.tp}" if par.cp == 1 else f"2 × cp and cp × tp, that is {parts}"
    if training.seq_length % parts:
        yield Finding(
            path=("training", "seq_length"),
            message=f"{training.seq_length} is not a multiple of {meaning};"
            f" seq_length can be {neighbours(training.seq_length, parts)}",
        )


def documents_fit(training: Training) -> Iterator[Finding]:
    """A pack holds a document at least."""
    pack, document = training.seq_length, training.document_length
    if document and document > pack:
        message = f"a sequence of {pack} tokens packs no documents of {document}; it must be {pack} or less"
        yield Finding(path=("training", "document_length"), message=message)


def routing_fits(model: Model, training: Training) -> Iterator[Finding]:
    """Only a router can be uneven, or be made even."""
    if model.moe is None and training.routing != "balanced":
        message = "the model is dense: there is no router; leave routing out, or give model.moe"
        yield Finding(path=("training", "routing"), message=message)


def loss_scale_fits(training: Training, schedule: str | None) -> Iterator[Finding]:
    """Only FP16 is scaled, and steps can be skipped only where there is one update each."""
    path = ("training", "loss_scale")
    if training.loss_scale and training.precision != "fp16":
        yield Finding(path=path, message=f"precision {training.precision} scales no loss; that is for fp16")
    if training.loss_scale and schedule and traits_of(schedule).weight_versions:
        yield Finding(path=path, message=f"{schedule} updates after every microbatch; no step can be skipped")
