plays=$MRTR_CASSETTE_SERVE/.mrtr/plays
json='Content-Type: application/json'
wanted='{"cassette": "shell-plan", "upstream": ["python", "../python/server.py", "--port", "{port}"]}'
member() { printf %s "$1" | python -c "import json, sys; print(json.load(sys.stdin)['$2'])"; }

begun=$(curl -sS "$plays" -H "$json" -d "$wanted")
said=$(python ../python/client.py --answer "${ANSWER:-accept}" "$(member "$begun" url)" form)
case $said in *'"accept fast"'*) outcome=passed ;; *) outcome=failed ;; esac
play=$plays/$(member "$begun" id)
ended=$(curl -sS -X DELETE "$play" -H "$json" -d "{\"outcome\": \"$outcome\"}")
member "$ended" problems
test $outcome = passed
