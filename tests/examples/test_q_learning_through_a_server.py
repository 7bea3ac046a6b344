"""The short form of examples/q_learning_through_a_server.py."""


def test_actors_and_a_learner_meet_at_a_server_of_its_own(example, capsys):
    share = example("q_learning_through_a_server").main(updates=200, actors=2)
    assert share > 0.1  # Random directions reach the goal in 1 % of the episodes.
    assert "each learnt from" in capsys.readouterr().out
