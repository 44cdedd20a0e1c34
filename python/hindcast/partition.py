"""What the forward program of :func:`hindcast.aot_function` saves for its backward."""


class Partition:
    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.__doc__ = meaning

    def __reduce__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"hindcast.partition.{self.name}"


standard = Partition("standard", "Saves what the autograd formulas save.")
min_cut = Partition("min_cut", "Saves as few bytes as it can, and computes the rest again in the backward where it is nearly free.")

# functorch's names.
default_partition = standard
min_cut_rematerialization_partition = min_cut
