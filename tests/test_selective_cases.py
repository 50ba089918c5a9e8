"""Which test answers which public bug report: the selective scan, its update, and what they owe to torch."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent

CASES = {
    "M-O1 the padded tail of a chunk decays in the backward": [
        "test_steps_behind_the_end_do_not_decay_in_the_backward", "test_equals_the_loop_and_its_gradients",
    ],
    "M-O2 offsets beyond 32 bits": ["test_rows_behind_two_to_the_31_elements_are_found"],
    "M-O3 strides of axes of length 1": ["test_strides_of_axes_of_length_one_do_not_matter"],
    "M-O4 any number of states, or a refusal": [
        "test_any_number_of_states", "test_gradients_with_odd_numbers_of_states", "test_every_path_for_states",
        "test_odd_numbers_of_states_and_strided_states", "test_errors_name_the_argument_and_the_rule",
        "test_numbers_of_states_with_groups_and_half_types",
    ],
    "M-O5 steps equal the parallel pass": ["test_steps_equal_the_parallel_pass"],
    "M-O6 a state in bfloat16 sticks": [
        "test_a_state_in_bfloat16_would_stick_and_ours_does_not", "test_inputs_in_bfloat16_do_not_round_the_state",
        "test_a_state_in_float32_moves_where_one_in_bfloat16_sticks",
    ],
    "M-O7 softplus, its slope, its bias": [
        "test_softplus_of_raw_steps", "test_the_slope_of_softplus_is_sigmoid_also_around_20",
    ],
    "M-O8 initial state, gradient through the final state": [
        "test_the_gradient_of_a_final_state_arrives", "test_a_dropped_gradient_of_the_final_state_is_caught",
    ],
    "M-O9 pieces equal one pass": [
        "test_any_cut_gives_the_same_outputs_and_gradients", "test_a_long_row_in_pieces_as_a_server_prefills_it",
    ],
    "M-O10 packed sequences": [
        "test_a_packed_row_counts_each_sequence_from_one", "test_packed_sequences_equal_their_runs_alone",
    ],
    "M-O11 the same bits in every run": [
        "test_every_run_gives_the_same_bits_and_a_row_does_so_alone",
        "test_the_same_bits_in_twenty_runs_and_for_a_row_alone",
    ],
    "D-O3 rows picked by an index list, negative ones are padding": [
        "test_slots_are_touched_if_they_are_named_and_not_otherwise", "test_slots_that_would_go_wrong_are_refused",
        "test_slots_padding_and_slots_that_are_used_again",
    ],
    "D-O4 a slot is used again without being cleared": [
        "test_an_old_state_in_a_slot_that_is_used_again_leaks_nowhere", "test_a_slot_that_is_used_again_is_not_read",
    ],
    "D-O5 padding on the right": [
        "test_a_shorter_prompt_keeps_the_state_of_its_last_real_token", "test_labels_and_padding_equal_the_reference",
    ],
    "D-O6 padding on the left": [
        "test_labels_and_padding_equal_the_reference", "test_junk_in_padding_leaks_nowhere",
    ],
    "T-O1 an expanded gradient": ["test_an_expanded_gradient_equals_a_real_one"],
    "T-O2 side streams": ["test_a_side_stream_is_used", "test_two_threads_repeat_one_plan_on_streams_of_their_own"],
    "T-O3 what torch is promised": [
        "test_the_operator_keeps_its_promises_to_torch", "test_a_compiled_function_is_the_same",
    ],
    "T-O4 the defining cell runs twice": ["test_running_the_defining_cell_twice_works"],
    "T-O5 every type, with gradients": [
        "test_every_dtype_equals_the_loop", "test_half_types", "test_every_dtype_and_layout",
    ],
    "K-O6 empty inputs": ["test_empty_inputs", "test_no_sequences_at_all", "test_no_rows_and_no_channels"],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_test_that_answers_a_case_is_there(case):
    texts = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_selective*.py"))
    missing = [name for name in CASES[case] if not re.search(rf"^def {name}\(", texts, re.M)]
    assert not missing
