"""Policies: one call for every form of policy that a user gives, with checks of its result.

`form_of` adapts a policy, `CheckedPolicy` calls it. Collectors and rollout workers use both:

    form = form_of(policy, action_signature, actions_or_pair)
    checked = CheckedPolicy(form, action_signature, initial_state_of(policy))
    decision = checked({"observation": observations}, rows=8)
"""

from headrace.policies.acting import ActingViews as ActingViews
from headrace.policies.acting import views_of as views_of
from headrace.policies.checked import CheckedPolicy as CheckedPolicy
from headrace.policies.checked import Decision as Decision
from headrace.policies.exploration import ExplorationType as ExplorationType
from headrace.policies.exploration import check_exploration_type as check_exploration_type
from headrace.policies.exploration import exploration_type as exploration_type
from headrace.policies.exploration import exploring as exploring
from headrace.policies.forms import Form as Form
from headrace.policies.forms import check_policy as check_policy
from headrace.policies.forms import form_of as form_of
from headrace.policies.forms import placed_policy as placed_policy
from headrace.policies.forms import reads_views as reads_views
from headrace.policies.forms import tensor_device as tensor_device
from headrace.policies.result import PolicyResult as PolicyResult
from headrace.policies.result import actions_alone as actions_alone
from headrace.policies.result import actions_or_pair as actions_or_pair
from headrace.policies.states import PolicyStates as PolicyStates
from headrace.policies.states import initial_state_of as initial_state_of
from headrace.policies.states import state_out_columns as state_out_columns
