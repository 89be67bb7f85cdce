# lines.awk: the lines of one stream of a rank as records of stream.jsonl, for any awk that knows systime().
#
#     awk -v head='"rank": 3, "file": "stdout"' -f lines.awk         what the rank prints
#     awk -v head='"rank": 3, "file": "metrics"' -v all=1 -f lines.awk    every line
#
# With -v rank=3 the first record says when the rank began; -v ended=FILE names a file that is made at the end.
#
# A line with a number is written: BURST lines of one form at once, and REFILL in each further second, so that what a
# rank repeats without end hides none of its other lines. Of other lines the one is written that comes SILENCE seconds
# after the last. launch/stream.py does the same for the other engine. `at` is the position of a line in what was printed.
BEGIN {
  RS = "[\r\n]" # a bar that is drawn again; mawk knows lines alone, and rank.sh parts the bar for it
  BURST = 10000; REFILL = 10; SILENCE = 2; LONGEST = 65536; FORMS = 1000
  if (rank != "") { print "{\"rank\": " rank ", \"time\": " systime() "}"; fflush() }
}

function quoted(text) {
  gsub(/["\\]/, "\\\\&", text)
  gsub(/\t/, "\\t", text)
  gsub(/\r/, "\\r", text)
  gsub(/\033/, "\\u001b", text)
  gsub(/[[:cntrl:]]/, " ", text)
  return "\"" text "\""
}

function put(text) {
  print "{" head ", \"time\": " now (all ? "" : sprintf(", \"at\": %.0f", begin)) ", \"line\": " quoted(text) "}"
  fflush()
  written = now
}

function may_be_written(line, form) {
  form = substr(line, 1, 400)
  gsub(/[0-9.]+/, "0", form)
  if (!(form in left)) {
    if (forms >= FORMS) form = ""
    if (!(form in left)) { forms++; left[form] = BURST; at[form] = now }
  }
  left[form] += (now - at[form]) * REFILL
  if (left[form] > BURST) left[form] = BURST
  at[form] = now
  if (left[form] < 1) return 0
  left[form]--
  return 1
}

{ begin = end; end += length($0) + 1 }

length($0) == 0 || length($0) > LONGEST { next }

{
  now = systime()
  if (all) {
    put($0)
  } else if ($0 !~ /[0-9]|[nN][aA][nN]|[iI][nN][fF]/) {
    if (now - written >= SILENCE) put($0)
  } else if (may_be_written($0)) {
    put($0)
  } else {
    skipped++
    if (now - written >= SILENCE) {
      print "{" head ", \"time\": " now ", \"skipped\": " skipped "}"
      skipped = 0
      put($0)
    }
  }
}

END {
  if (skipped) print "{" head ", \"skipped\": " skipped "}"
  fflush()
  if (ended) printf "" >ended
}
