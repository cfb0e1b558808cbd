package rowan_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The README's example is examples/quickstart, and does what the README says.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("examples/quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(code), "func main() {")
	if !ok {
		t.Fatal("examples/quickstart has no main")
	}
	body, _, _ = strings.Cut(body, "\n}\n")
	if !strings.Contains(string(readme), body) {
		t.Errorf("the README does not show main of examples/quickstart")
	}
	out, err := exec.Command("go", "run", "./examples/quickstart").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "user#42 info:city = Turku\nuser#42 info:city = Bergen\n"
	if string(out) != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	if !strings.Contains(string(readme), strings.TrimSpace(want)) {
		t.Errorf("the README does not show the example's output")
	}
}
