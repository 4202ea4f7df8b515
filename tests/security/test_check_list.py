"""The check list of security, by the risks of the OWASP API Top 10 (2023): what holds each row.

A risk, then where it is held: a file below `tests`, and its test. The test below fails where one of
them is gone.

API1, API5: every route by every role          controller/api/security/test_every_route.py test_a_caller_gets_as_far_as_its_scope
API1, API5: a route added later                controller/api/security/test_every_route.py test_a_route_without_a_scope_cannot_be_made
API1, API5: grants of single dataflows         controller/api/security/test_sessions.py test_a_limited_token_touches_only_its_dataflows
API1, API5: routes that decide by themselves   controller/api/security/test_limited_tokens.py test_only_these_routes_decide_by_themselves
API1, API5: refused callers change nothing     controller/api/security/test_every_route.py test_refused_requests_change_nothing
API2: no answer without a valid credential     controller/api/security/test_every_route.py test_without_a_valid_credential_no_route_answers
API2: unknown paths tell nothing               controller/api/security/test_every_route.py test_unknown_paths_tell_nothing_to_outsiders
API2: a token also on loopback, made at once   controller/test_settings.py test_the_token_is_made_once_for_the_owner_only
API2: no token, no service                     controller/test_settings.py test_an_empty_token_is_refused
API2: other machines only on request           controller/test_settings.py test_an_address_that_others_reach_must_be_allowed
API2: guesses are limited                      controller/api/security/test_sessions.py test_guesses_are_limited_by_address
API2: no token in an address                   security/test_answers.py test_no_address_of_the_page_or_of_rest_has_a_token
API2: tokens expire, rotate, end               controller/access/test_tokens.py test_a_rotated_token_has_its_life_again
API2: TLS, files that are wrong                controller/server/test_tls.py test_a_key_that_others_may_read_is_refused
API2: TLS, clients check who answers           controller/server/test_tls.py test_commands_refuse_a_service_with_a_certificate_of_nobody_they_trust
API2: a provider's tokens, by algorithm       controller/access/test_oidc.py test_the_algorithm_is_that_of_the_key
API2: a provider's tokens, by their claims     controller/access/test_oidc.py test_a_token_for_something_else_is_refused
API2: a provider's keys, floods of names       controller/access/test_oidc_keys.py test_unknown_names_do_not_make_the_service_ask_again_and_again
API3: fields that a body does not know         security/test_answers.py test_no_request_takes_what_it_does_not_know
API3: answers with secrets                     security/test_answers.py test_only_a_new_token_shows_its_secret
API3, API9: answers as the document says       controller/api/test_fuzz.py test_every_answer_is_one_that_the_document_names
API3, API9: all checks of a tool, in full      controller/api/test_fuzz_in_full.py test_no_check_finds_anything
API4: bodies at the limit and beyond           controller/api/security/test_guard.py test_every_route_has_a_bound_of_its_body
API4: pages                                    controller/api/routes/test_runs.py test_an_operator_may_allow_smaller_pages_only
API4: uploads                                  controller/ingest/test_upload.py test_upload_beyond_the_limit_leaves_nothing
API4: dataflows                                controller/app/test_service.py test_a_service_takes_so_many_dataflows
API4: sources and stages of a dataflow         controller/registry/test_documents.py test_what_is_too_much_is_refused_alike_at_a_bounded_cost
API4: queries that do not end                  controller/query/test_queries.py test_what_does_not_end_is_ended
API4: queries that take all memory             controller/query/test_queries.py test_what_takes_too_much_memory_is_ended
API4: clients of events                        controller/events/test_events.py test_too_many_streams_are_refused_before_they_begin
API4: requests of one caller                   controller/api/security/test_guard.py test_a_caller_sends_so_many_requests_a_second
API4: slow clients                             controller/api/requests/test_body.py test_who_trickles_is_given_up
API4: halves of requests                       controller/server/test_http_protocol.py test_half_a_head_is_closed_in_time
API4: files that never end                     controller/ingest/reader/test_reader_pool.py test_a_file_that_takes_too_long_is_refused
API4: files that take all memory               controller/ingest/reader/test_reader_pool.py test_a_file_that_takes_too_much_memory_is_refused
API7: every spelling of an own address         controller/outbound/test_addresses.py test_no_spelling_of_an_own_address_is_reached
API7: names that resolve to one                controller/outbound/test_addresses.py test_a_name_that_resolves_to_an_own_address_is_refused
API7: metadata services                        controller/outbound/test_addresses.py test_metadata_services_are_refused_whatever_is_allowed
API7: resolve, then connect                    controller/outbound/test_addresses.py test_the_address_that_was_judged_is_the_one_that_is_dialled
API7: redirects                                controller/outbound/test_addresses.py test_a_redirect_is_not_followed
API7: other schemes                            controller/outbound/test_addresses.py test_other_schemes_are_refused
API8: headers of every kind of answer          security/test_answers.py test_every_kind_of_answer_has_the_security_headers
API8: headers of every route                   security/test_answers.py test_every_route_answers_with_the_security_headers
API8: headers without the application          security/test_answers.py test_what_is_no_http_is_refused_with_the_same_headers
API8: errors without their text                controller/api/security/test_guard.py test_an_unforeseen_error_is_told_without_its_text
API8: listening sockets                        system/test_file_modes.py test_all_that_a_service_writes_is_its_users_alone
API8: the page's policy                        controller/api/test_web_page.py test_every_screen_is_the_page_with_a_nonce_of_its_own
API8: containers                               deploy/test_compose.py test_every_published_port_is_on_the_loopback_address
API9: the document is the service's            controller/api/test_openapi_document.py test_the_committed_document_is_the_services
CSRF: forms                                    controller/api/security/test_sessions.py test_a_form_without_the_header_changes_nothing
CSRF: cookies                                  controller/api/security/test_sessions.py test_a_link_signs_in_once
CSRF: other pages                              controller/api/security/test_sessions.py test_what_the_browser_says_comes_from_another_page_is_refused
DNS rebinding: forged Host                     controller/api/security/test_guard.py test_a_foreign_host_header_is_refused
DNS rebinding: forged Origin                   controller/api/security/test_guard.py test_pages_of_other_origins_are_refused
requests that are read in two ways             controller/api/security/test_guard.py test_a_header_that_is_meant_once_is_refused_twice
bombs: gzip, bzip2, zstd                       controller/ingest/formats/test_faults.py test_a_bomb_is_stopped
bombs: archives in archives                    controller/ingest/formats/test_faults.py test_damaged_csv_goes_to_quarantine
bombs: Parquet's dictionaries                  controller/ingest/formats/test_parquet_bounds.py test_a_dictionary_that_repeats_long_texts_is_refused_in_bounded_memory
bombs: Parquet's pages                         controller/ingest/formats/test_parquet_bounds.py test_a_page_of_any_size_may_not_be_claimed
bombs: Avro's blocks                           controller/ingest/formats/test_avro.py test_a_block_that_expands_without_end_is_stopped
bombs: XML's entities                          controller/ingest/formats/test_xml.py test_a_document_type_is_refused_unread
bombs: bodies that are packed                  controller/api/security/test_guard.py test_a_compressed_body_is_refused_before_it_is_read
files and uploads that lie                     fuzz/test_fuzz.py test_files_that_lie_in_one_place_are_right_or_refused
uploads: no answer above a 4xx                 fuzz/test_fuzz.py test_a_service_takes_uploads_and_files_that_lie
files and uploads that lie, killed             system/test_kill_under_load.py test_a_service_is_ready_in_ten_seconds_and_every_file_has_its_fate
traversal: names in every route                security/test_names.py test_a_hostile_name_is_refused_by_every_route
traversal: names of uploads                    security/test_names.py test_a_hostile_name_of_a_file_is_only_text
traversal: names in documents                  security/test_names.py test_a_hostile_name_in_a_document_is_refused
traversal: names of dropped files              controller/ingest/test_drop_folder.py test_any_name_is_taken_and_none_reaches_a_path
traversal: folders that become links           controller/ingest/folder/test_nested.py test_a_folder_that_becomes_a_link_is_not_followed
traversal: links, devices                      controller/ingest/folder/test_strange_files.py test_no_kind_of_file_stops_its_source
traversal: files of the page                   controller/api/test_web_page.py test_no_path_leads_out_of_the_bundle
XSS: file names and lines on the page          ui/test_data_screens.py test_hostile_values_are_text_everywhere
XSS: refused files are downloads               controller/api/routes/test_quarantine.py test_a_refused_file_is_a_download_whatever_it_holds
XSS: drawings                                  cbp/model/graph/test_drawing.py test_a_name_never_becomes_markup
secrets: every output                          security/test_canary.py test_no_secret_is_in_any_output
secrets: refused requests                      controller/api/security/test_audited.py test_no_secret_is_in_any_output
secrets: logs                                  controller/app/test_logs.py test_no_secret_setting_is_in_a_line
secrets: lines that cannot be written          controller/app/test_logs.py test_a_line_that_cannot_be_written_shows_no_secret
secrets: support bundle                        controller/cli/maintenance/test_support_bundle.py test_a_bundle_says_how_the_service_is_and_has_no_secret_and_no_record
secrets: command lines of processes            spark/test_secrets.py test_no_command_line_shows_a_secret_of_spark
secrets: files are the service's alone         system/test_file_modes.py test_all_that_a_service_writes_is_its_users_alone
audit: every change by its name                controller/api/security/test_audited.py test_every_change_is_audited_under_its_own_name
supply chain: pins with hashes                 deploy/test_constraints.py test_every_pin_has_a_hash
supply chain: drift of the lock                deploy/test_constraints.py test_every_requirement_has_a_pin_that_meets_it
supply chain: what is installed                controller/cli/maintenance/test_sbom.py test_every_installed_package_is_listed_once
supply chain: images by digest                 deploy/test_compose.py test_every_foreign_image_is_pinned_by_its_digest
supply chain: images without a digest           deploy/test_compose.py test_the_build_refuses_an_image_without_a_digest
supply chain: not root                         deploy/test_compose.py test_our_containers_run_without_rights
"""  # noqa: E501 - a table

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_row_has_its_test() -> None:
    """The table above names tests that exist, and each row once."""
    assert __doc__ is not None
    rows = re.findall(r"^(.+?)  +(\S+\.py) (test_\w+)$", __doc__, re.MULTILINE)
    assert len(rows) == len([line for line in __doc__.splitlines() if " test_" in line])
    assert len({row[0] for row in rows}) == len(rows) > 50
    gone = [
        row
        for row in rows
        if not (TESTS / row[1]).is_file() or f"\ndef {row[2]}(" not in (TESTS / row[1]).read_text()
    ]
    assert gone == []
