# Settings with which the parameters of the scores learn at 0.15 of the rate. To be sourced.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the variables are for the scripts that source this file
slow_scaled_dot_product="train.rate_factors=[mixer.query_key_value=0.15]"  # also slows the values, which share the projection
slow_quadratic="train.rate_factors=[mixer.form=0.15,mixer.projection=0.15]"
slow_metric="train.rate_factors=[mixer.packed_metric=0.15,mixer.projection=0.15]"
