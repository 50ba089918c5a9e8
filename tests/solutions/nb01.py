"""Answers to the exercises of notebook 01, and plausible wrong ones with words that their explanation must contain."""


# 1.A
def combine(first, second):
    return second[0] * first[0], second[0] * first[1] + second[1]


def swapped(first, second):
    return combine(second, first)


def unscaled(first, second):
    return first[0] * second[0], first[1] + second[1]


def forgets_the_second_b(first, second):
    return first[0] * second[0], second[0] * first[1]


def adds_the_factors(first, second):
    return first[0] + second[0], second[0] * first[1] + second[1]


def only_the_state(first, second):
    return second[0] * first[1] + second[1]


# 1.B: each answer is (my_lift, my_combine, my_read, my_empty)
def sum_and_count(x):
    return x, 1


def add_both(first, second):
    return first[0] + second[0], first[1] + second[1]


def divide(element):
    return element[0] / element[1]


def no_numbers():
    return 0, 0


def itself(x):
    return x


def average(first, second):
    return (first + second) / 2


def forgets_to_count(first, second):
    return first[0] + second[0], second[1]


def assumes_one_newcomer(first, second):
    return first[0] + second[0], first[1] + 1


def one_zero():
    return 0, 1


def weighted(first, second):
    count = first[1] + second[1]
    return (first[0] * first[1] + second[0] * second[1]) / count, count


# 1.C
def segmented(first, second, combine):
    return first[0] or second[0], second[1] if second[0] else combine(first[1], second[1])


def flag_of_the_second(first, second, combine):
    return second[0], second[1] if second[0] else combine(first[1], second[1])


def never_forgets(first, second, combine):
    return first[0] or second[0], combine(first[1], second[1])


def looks_at_the_first_flag(first, second, combine):
    return first[0] or second[0], second[1] if first[0] else combine(first[1], second[1])


def letters_swapped(first, second, combine):
    return first[0] or second[0], second[1] if second[0] else combine(second[1], first[1])


def always_flagged(first, second, combine):
    return True, second[1] if second[0] else combine(first[1], second[1])


SOLUTIONS = {
    "1.A": combine,
    "1.B": (sum_and_count, add_both, divide, no_numbers),
    "1.C": segmented,
}
WRONG = {
    "1.A": [
        (swapped, "changed places"),
        (unscaled, "must be scaled"),
        (forgets_the_second_b, "b of the second step is missing"),
        (adds_the_factors, "a is their product"),
        (only_the_state, "must give back a pair"),
    ],
    "1.B": [
        ((itself, average, itself, lambda: 0), "averaging two averages"),
        ((sum_and_count, forgets_to_count, divide, no_numbers), "not 3"),
        ((sum_and_count, assumes_one_newcomer, divide, no_numbers), "(2, (4, 9))"),
        ((sum_and_count, add_both, divide, one_zero), "no numbers at all"),
        ((sum_and_count, weighted, lambda element: element[0], no_numbers), "divide only in my_read"),
    ],
    "1.C": [
        (flag_of_the_second, "restart inside"),
        (never_forgets, "must forget what came before"),
        (looks_at_the_first_flag, "goes on from the first"),
        (letters_swapped, "changed places"),
        (always_flagged, "Nothing restarts here"),
    ],
}
