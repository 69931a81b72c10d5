//! A program of bubbles under the real binary takes its processors from its place, and follows its changes.

use coplace_tests::{Home, app, bubbles_example, processes, skipped};

#[test]
fn a_program_of_bubbles_has_all_of_the_machine_alone_and_its_part_beside_another() {
    if processes::cpu_count() < 2 {
        return skipped("bubbles that follow their place", "there is one CPU only");
    }
    let home = Home::new();
    let (bubbles, regions) = (bubbles_example("pieces"), app("regions"));
    let text = format!(
        "[[program]]\nname = 'bubbles'\ncommand = ['{bubbles}', '160000']\n\
         [[program]]\nname = 'regions'\ncommand = ['{regions}', '--size', 'S', '--scale', '0.7']\n"
    );
    let mix = home.mix(&text, &["--policy", "TA", "--cpus", "0-1"]);
    mix.is_verified();
    let widths = mix.widths("bubbles");
    assert!(widths.contains_key(&1) && widths.contains_key(&2), "{widths:?}, {:?}", mix.plans());
    assert!(
        mix.plans().iter().all(|plan| !plan.contains("in_turn") && !plan.contains("mixed")),
        "it shrinks, and so nobody takes turns: {:?}",
        mix.plans()
    );
    let printed = mix.printed("bubbles");
    assert!(printed.starts_with("2 processors"), "{printed}");
    home.is_left_clean();
}
